// The rules of streams, decided as proto/rules/README.md describes them.

import { sha256 } from "./merkle.js";
import { canonical } from "./wire.js";

interface Mark {
  list: "tasks" | "criteria" | "questions";
  from: string[];
  to: string;
  refused_as?: Record<string, string>;
}

interface Row {
  kind: string;
  when?: Record<string, unknown>;
  by?: string[];
  not_by?: string[];
  roles?: string[];
  from: string[];
  refused_as?: Record<string, string>;
  mark?: Mark;
  needs?: string[];
  to?: string;
  records?: string[];
  identity_key?: boolean;
}

export interface Table {
  roles: string[];
  conditions: Record<string, string>;
  rows: Row[];
}

type Data = Record<string, any>;

export interface Event {
  index: number;
  id: string;
  accepted_ms: number;
  key: string;
  kind: string;
  stream: string;
  author: string;
  data: Data;
}

interface Key {
  agent: string;
  since: number;
  delegatedBy?: string;
  compromisedSince?: number;
}

export interface Cast {
  roles: Record<string, string[]>;
  keys: Record<string, Key>;
}

interface Signed {
  index: number;
  key: string;
}

interface Grant extends Signed {
  role: string;
  by: string;
  end?: number;
}

const empty = {
  name: "none",
  owner: "",
  steps: [] as number[],
  sender: "",
  importer: "",
  receiver: "",
  reviewer: "",
  version: "",
  depends_on: [] as string[],
  unlock_at: "completed",
  tasks: [] as string[],
  criteria: [] as string[],
  claimed_status: "",
  lease: null as [number, number] | null,
  approval: null as Signed | null,
  completion: null as (Signed & { id: string }) | null,
  verification: null as Signed | null,
  waivers: [] as (Signed | null)[],
  handovers: [] as Signed[],
  questions: [] as string[],
  asked: [] as { by: string; to: string }[],
  is_announced: false,
};
type State = typeof empty;

const CONTENT = [
  "title", "to", "reviewer", "created", "proposal", "depends_on", "unlock_at", "task", "tasks", "criteria", "context",
  "notes", "answers", "reasoning_refs", "template",
];
const DEPENDENCIES_MAX = 100_000;
const QUESTIONS_MAX = 1_000;
const QUESTIONS_OF_AUTHOR_MAX = 100;

const isEmpty = (value: unknown): boolean =>
  value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0);

class Refusal {
  constructor(readonly code: string) {}
}

function need(condition: boolean, code: string): void {
  if (!condition) {
    throw new Refusal(code);
  }
}

export function versionOf(data: Data, sender: string): string {
  const content: Data = {};
  for (const name of CONTENT) {
    const notes = Object.entries(data[name] ?? {}).filter(([, lines]) => !isEmpty(lines));
    const value = name === "notes" ? (notes.length > 0 ? Object.fromEntries(notes) : null) : data[name];
    if (!isEmpty(value) && !(name === "unlock_at" && value === "completed")) {
      content[name] = value;
    }
  }
  return `sha256:${sha256(Buffer.from(canonical({ ...content, from: sender }))).toString("hex")}`;
}

export function resultOf(version: string, completion: string): string {
  return `sha256:${sha256(Buffer.from(canonical({ completion, version }))).toString("hex")}`;
}

/** All streams, agents and keys after the events so far. */
export class Ledger {
  private readonly states = new Map<string, State>();
  private readonly streams = new Map<string, string>();
  private readonly removed = new Set<string>();

  /** The grants of roles in the cases, and the roles of the agents before them. */
  private readonly grants = new Map<string, Grant[]>();
  private readonly first: Record<string, string[]>;

  constructor(readonly tables: Record<string, Table>, private readonly cast: Cast) {
    this.first = structuredClone(cast.roles);
  }

  /** Return the state of a stream at a time, as the rules see it. */
  at(stream: string, now: number): State {
    const state = this.states.get(stream) ?? empty;
    const holds = state.lease === null || (state.lease[0] <= now && now < state.lease[1]);
    return state.name === "in_progress" && !holds ? { ...state, name: "lapsed" } : state;
  }

  /** Accept an event, or return the code of its refusal. */
  decide(event: Event): string {
    try {
      if (!this.changesAuthority(event)) {
        this.states.set(event.stream, this.decided(event));
      }
      this.streams.set(event.id, event.stream);
      return "";
    } catch (error) {
      if (error instanceof Refusal) {
        return error.code;
      }
      throw error;
    }
  }

  hasRole(agent: string, roles: string[]): boolean {
    return (this.cast.roles[agent] ?? []).some((role) => roles.includes(role) && this.roleCounts(agent, role, Infinity));
  }

  ownerOf(key: string): string {
    return this.cast.keys[key]!.agent;
  }

  /** Return whether an agent had a role before an entry, by grants that rest on no compromised key. */
  roleCounts(agent: string, role: string, index: number): boolean {
    let grant = this.grantAt(agent, role, index);
    if (grant === undefined) {
      const isGranted = (this.grants.get(agent) ?? []).some((other) => other.role === role);
      return !isGranted && (this.first[agent] ?? []).includes(role);
    }
    for (; grant !== undefined; grant = this.grantAt(grant.by, "admin", grant.index)) {
      if (this.isCompromised(grant.key, grant.index)) {
        return false;
      }
    }
    return true;
  }

  private grantAt(agent: string, role: string, index: number): Grant | undefined {
    const isHeld = (grant: Grant) => grant.index < index && (grant.end === undefined || index <= grant.end);
    return (this.grants.get(agent) ?? []).findLast((grant) => grant.role === role && isHeld(grant));
  }

  isRegistered(agent: string): boolean {
    return agent in this.cast.roles && !this.removed.has(agent);
  }

  isCompromised(key: string, index: number): boolean {
    const record = this.cast.keys[key];
    if (record?.compromisedSince !== undefined && index >= record.compromisedSince) {
      return true;
    }
    return record?.delegatedBy !== undefined && this.isCompromised(record.delegatedBy, record.since);
  }

  streamOf(id: string): string | undefined {
    return this.streams.get(id);
  }

  /** Return the handoffs that dependencies lead to, breadth first, until one is the handoff itself or there are too many. */
  reached(name: string, first: string[]): Set<string> {
    const reached = new Set<string>();
    const queue = [first];
    for (const names of queue) {
      for (const wanted of names.filter((other) => !reached.has(other))) {
        reached.add(wanted);
        queue.push(this.states.get(`handoff/${wanted}`)?.depends_on ?? []);
      }
      if (reached.has(name) || reached.size > DEPENDENCIES_MAX) {
        break;
      }
    }
    return reached;
  }

  // The cases change agents and keys only as they may: proto/README.md, section 10, has these rules.
  private changesAuthority({ kind, index, key, author, data }: Event): boolean {
    const { roles, keys } = this.cast;
    switch (kind) {
      case "role.granted":
        roles[data.agent] = [...(roles[data.agent] ?? []), data.role];
        this.grants.set(data.agent, [...(this.grants.get(data.agent) ?? []), { role: data.role, index, key, by: author }]);
        return true;
      case "role.revoked":
        roles[data.agent] = (roles[data.agent] ?? []).filter((role) => role !== data.role);
        for (const grant of this.grants.get(data.agent) ?? []) {
          grant.end ??= grant.role === data.role ? index : undefined;
        }
        return true;
      case "agent.removed":
        roles[data.agent] = [];
        this.removed.add(data.agent);
        return true;
      case "key.rotated":
        keys[data.key] = { agent: data.agent, since: index };
        return true;
      case "key.compromised":
        keys[data.key] = { ...keys[data.key]!, compromisedSince: data.since };
        return true;
      default:
        return false;
    }
  }

  private decided(event: Event): State {
    const table = this.tables[event.stream.split("/")[0]!]!;
    const row = table.rows.find(({ kind, when }) => kind === event.kind && matches(when ?? {}, event.data));
    if (row === undefined) {
      throw new Refusal("UNKNOWN_KIND");
    }
    need(!(row.identity_key === true && this.cast.keys[event.key]?.delegatedBy !== undefined), "KEY_OUT_OF_SCOPE");
    const decision = new Decision(this, row, event, this.at(event.stream, event.accepted_ms));
    const { state } = decision;
    need(state.name !== "none" || row.from.includes("none"), "NOT_FOUND");
    if (!row.from.includes("none")) {
      decision.checkParties();
    }
    need(row.from.includes(state.name), row.refused_as?.[state.name] ?? "TRANSITION_NOT_ALLOWED");
    need(this.hasRole(event.author, row.roles ?? table.roles), "NOT_AUTHORIZED");
    if (row.mark !== undefined) {
      const mark = state[row.mark.list][event.data.position];
      need(mark !== undefined, "INVALID_FIELD");
      need(row.mark.from.includes(mark!), row.mark.refused_as?.[mark!] ?? "NOTHING_CHANGED");
    }
    for (const name of row.needs ?? []) {
      need(CONDITIONS[name]!(decision), table.conditions[name]!);
    }
    return decision.after();
  }
}

const matches = (when: Data, data: Data): boolean =>
  Object.entries(when).every(([name, value]) => (value === null ? isEmpty(data[name]) : data[name] === value));

/** One event that is decided: the row, the state before, and the data that conditions read. */
class Decision {
  readonly data: Data;
  readonly claims: { tasks: number[]; criteria: number[]; status?: string };

  constructor(readonly ledger: Ledger, readonly row: Row, readonly event: Event, readonly state: State) {
    this.data = "mapped_kind" in event.data ? event.data.mapped : event.data;
    this.claims = { tasks: [], criteria: [], ...event.data.claims };
  }

  get author(): string {
    return this.event.author;
  }

  get name(): string {
    return this.event.stream.slice(this.event.stream.indexOf("/") + 1);
  }

  get senders(): string[] {
    return [this.state.sender, this.state.importer].filter((name) => name !== "");
  }

  /** The reviewer: the author of the first hand-over that does not count, if there is one. */
  get reviewer(): string {
    const handover = this.voidHandover(this.state);
    return handover === undefined ? this.state.reviewer : this.ledger.ownerOf(handover.key);
  }

  voidHandover(state: State): Signed | undefined {
    return state.handovers.find((handover) => !this.isReviewing(handover));
  }

  get steps(): number[] {
    return (this.data.steps ?? []).map((step: { step_number: number }) => step.step_number);
  }

  get dependsOn(): string[] {
    return this.data.depends_on ?? [];
  }

  isParty(party: string): boolean {
    const { owner, receiver } = this.state;
    const { reviewer } = this;
    switch (party) {
      case "admin":
        return this.ledger.hasRole(this.author, ["admin"]);
      case "sender":
        return this.senders.includes(this.author);
      case "receiver":
        return receiver === this.author;
      case "reviewer":
        return reviewer === this.author && reviewer !== receiver;
      default:
        return owner === this.author;
    }
  }

  checkParties(): void {
    const { by, not_by } = this.row;
    if (by?.some((party) => this.isParty(party))) {
      return;
    }
    need(!(not_by ?? []).some((party) => this.isParty(party)), "SELF_APPROVAL");
    need(by === undefined, "NOT_AUTHORIZED");
  }

  after(): State {
    const { row, event, data } = this;
    const records = row.records ?? [];
    let state: State = this.state.name === "none" ? { ...this.state, owner: this.author } : { ...this.state };
    if (state.name === "lapsed") {
      state = { ...state, name: "approved", lease: null };
    }
    if (records.includes("content")) {
      state = this.withContent(state);
    }
    if (row.to !== undefined && row.to !== state.name) {
      state = { ...state, name: row.to, lease: null, is_announced: false };
    }
    if (row.mark !== undefined) {
      state = { ...state, [row.mark.list]: state[row.mark.list].with(data.position, row.mark.to) };
    }
    const { claims } = this;
    const completion = { id: event.id, index: event.index, key: event.key };
    const changes: Record<string, () => Partial<State>> = {
      content: () => ({}),
      claims: () => ({
        tasks: state.tasks.map((mark, at) => (claims.tasks.includes(at) ? "done" : mark)),
        criteria: state.criteria.map((mark, at) => (claims.criteria.includes(at) ? "claimed" : mark)),
        claimed_status: claims.status ?? "",
        completion,
      }),
      approval: () => ({ approval: { index: event.index, key: event.key }, completion: null }),
      verification: () => ({ verification: { index: event.index, key: event.key } }),
      waiver: () => ({ waivers: state.waivers.with(data.position, { index: event.index, key: event.key }) }),
      lease: () =>
        isEmpty(data.lease_seconds)
          ? {}
          : { lease: [event.accepted_ms, event.accepted_ms + 1000 * data.lease_seconds] },
      completion: () => ({ completion }),
      reopening: () => ({ criteria: state.criteria.map((mark) => (mark === "checked" ? "reopened" : mark)) }),
      question: () => ({
        questions: [...state.questions, "open"],
        asked: [...state.asked, { by: event.author, to: data.to }],
      }),
      addressee: () => ({ receiver: data.to }),
      announcement: () => ({ is_announced: true }),
      steps: () => ({ steps: [...state.steps, ...this.steps] }),
      retraction: () => ({ steps: state.steps.filter((step) => step !== data.step) }),
    };
    for (const record of records) {
      state = { ...state, ...changes[record]!() };
    }
    return state;
  }

  private withContent(state: State): State {
    const { data, author } = this;
    let [sender, importer, reviewer] = [state.sender, state.importer, author];
    if (this.event.kind === "handoff.created") {
      sender = author;
    } else if (this.event.kind === "record.imported") {
      sender = this.event.data.claimed_author ?? "";
      [importer, reviewer] = [author, sender];
    }
    return {
      ...empty,
      name: state.name,
      owner: state.owner,
      sender,
      importer,
      receiver: data.to ?? "",
      reviewer: data.reviewer ?? reviewer,
      version: versionOf(data, sender),
      depends_on: this.dependsOn,
      unlock_at: data.unlock_at ?? "completed",
      tasks: (data.tasks ?? []).map(() => "open"),
      criteria: (data.criteria ?? []).map(() => "open"),
      waivers: (data.criteria ?? []).map(() => null),
      handovers: this.handoversTo(data.reviewer ?? reviewer),
      questions: state.questions,
      asked: state.asked,
    };
  }

  /** Return the hand-overs by which the review comes to a reviewer. */
  private handoversTo(reviewer: string): Signed[] {
    const { event, state, ledger } = this;
    if (event.data.hands_over !== true) {
      return reviewer === state.reviewer ? state.handovers : [];
    }
    const until = (handovers: Signed[], name: string): Signed[] => {
      const end = handovers.findIndex(({ key }) => ledger.ownerOf(key) === name);
      return end < 0 ? handovers : handovers.slice(0, end);
    };
    return until([...until(state.handovers, this.author), { index: event.index, key: event.key }], reviewer);
  }

  approvalCounts(): boolean {
    return this.counts(this.state.approval);
  }

  /** Return whether a decision and the role of its author rest on no compromised key. */
  counts(decision: Signed | null, state = this.state): boolean {
    if (decision === null) {
      return true;
    }
    const author = this.ledger.ownerOf(decision.key);
    const isOwn = decision.index === state.approval?.index && [state.sender, state.importer].includes(author);
    if (isOwn) {
      return this.holds(decision, ["human"]);
    }
    const handover = this.voidHandover(state);
    return (handover === undefined || this.ledger.ownerOf(handover.key) === author) && this.isReviewing(decision);
  }

  private isReviewing(signed: Signed): boolean {
    return this.holds(signed, REVIEWING);
  }

  /** Return whether a signature and the role of its author rest on no compromised key. */
  private holds({ key, index }: Signed, roles: string[]): boolean {
    const author = this.ledger.ownerOf(key);
    return roles.some((role) => this.ledger.roleCounts(author, role, index)) && !this.ledger.isCompromised(key, index);
  }

  waiversCount(state = this.state): boolean {
    return state.criteria.every((mark, at) => mark !== "waived" || this.counts(state.waivers[at]!, state));
  }

  exists(stream: string): boolean {
    return this.ledger.at(stream, this.event.accepted_ms).name !== "none";
  }

  /** Return whether the completion of a handoff rests on no compromised key. */
  completionCounts({ completion }: State): boolean {
    if (completion === null) {
      return true;
    }
    return this.holds(completion, this.ledger.tables["handoff"]!.roles);
  }

  /** Return the state of a dependency, as far as its completion and its decisions count. */
  dependency(on: string): string {
    const state = this.ledger.at(`handoff/${on}`, this.event.accepted_ms);
    let { name } = state;
    if (name === "verified" && !this.counts(state.verification, state)) {
      name = state.approval === null ? "pending" : "completed";
    }
    const isCounted = this.counts(state.approval, state) && this.completionCounts(state) && this.waiversCount(state);
    return name === "completed" && !isCounted ? "in_progress" : name;
  }
}

function formCycle(dependencies: Record<string, number[]>): boolean {
  const done = new Set<string>();
  const visit = (step: string, path: string[]): boolean => {
    if (path.includes(step) || done.has(step)) {
      return path.includes(step);
    }
    const isCycle = (dependencies[step] ?? []).some((wanted) => visit(String(wanted), [...path, step]));
    done.add(step);
    return isCycle;
  };
  return Object.keys(dependencies).some((step) => visit(step, []));
}

const same = (left: unknown, right: unknown): boolean => canonical(left ?? null) === canonical(right ?? null);

function fieldsAgree(data: Data): boolean {
  const briefs: Data[] = data.briefs ?? [];
  const levels = briefs.map(({ level }) => level);
  const own = briefs.find(({ level }) => level === data.level);
  return (
    (data.context_source === "none") === isEmpty(data.context_summary) &&
    ["level", "reasoning_fidelity", "reasoning_size"].every((name) => isEmpty(data[name]) === isEmpty(data.reasoning_ref)) &&
    new Set(levels).size === levels.length &&
    (briefs.length === 0 || own !== undefined) &&
    briefs.every((brief) => brief.reasoning_ref === data.reasoning_ref && brief.conclusion === (data.conclusion ?? "")) &&
    (own === undefined ||
      (["reasoning_brief", "top_assumptions", "top_evidence_refs"].every((name) => same(own[name], data[name])) &&
        own.fidelity.value === data.reasoning_fidelity &&
        same(own.sizes, data.reasoning_size) &&
        same(own.tags.map(({ tag }: { tag: string }) => tag), data.reasoning_tags)))
  );
}

const REVIEWING = ["reviewer", "human"];

const CONDITIONS: Record<string, (decision: Decision) => boolean> = {
  author_is_human: ({ ledger, author }) => ledger.hasRole(author, ["human"]),
  reviewer_is_independent: ({ data, author }) => (data.reviewer ?? author) !== data.to && data.reviewer !== author,
  reviewer_is_another: ({ data, state, senders }) =>
    !isEmpty(data.reviewer) && ![...senders, state.receiver, state.reviewer].includes(data.reviewer),
  only_reviewer_changes: ({ data, state }) =>
    [{}, { created: null }].some(
      (change) => versionOf({ ...data, reviewer: state.reviewer, ...change }, state.sender) === state.version,
    ),
  receiver_is_registered: ({ data, ledger }) => ledger.isRegistered(data.to),
  reviewer_is_registered: ({ data, ledger }) => ledger.isRegistered(data.reviewer),
  reviewer_may_review: ({ data, ledger }) => ledger.hasRole(data.reviewer, REVIEWING),
  reviewer_is_kept: ({ data, reviewer, author, senders, ledger }) =>
    [...senders, data.reviewer ?? author, author].includes(reviewer) || !ledger.hasRole(reviewer, REVIEWING),
  dependencies_form_no_cycle: ({ ledger, name, dependsOn }) => !ledger.reached(name, dependsOn).has(name),
  dependencies_are_bounded: ({ ledger, name, dependsOn }) => ledger.reached(name, dependsOn).size <= DEPENDENCIES_MAX,
  import_is_own: ({ state, author }) => state.name === "none" || (state.importer || state.owner) === author,
  import_changes_something: (decision) =>
    decision.state.name === "none" || !same({ ...decision.after(), completion: decision.state.completion }, decision.state),
  claims_name_items: ({ claims, data }) =>
    claims.tasks.every((at) => at < (data.tasks ?? []).length) &&
    claims.criteria.every((at) => at < (data.criteria ?? []).length),
  version_is_current: ({ data, state }) => data.version === state.version,
  result_is_current: ({ data, state }) => state.completion !== null && data.result === resultOf(state.version, state.completion.id),
  questions_are_settled: ({ state }) =>
    state.questions.every((mark, at) => mark === "settled" || state.asked[at]!.to !== state.receiver),
  questions_are_bounded: ({ state, author }) =>
    state.questions.length < QUESTIONS_MAX &&
    state.questions.filter((mark, at) => mark !== "settled" && state.asked[at]!.by === author).length <
      QUESTIONS_OF_AUTHOR_MAX,
  asks_another: ({ data, author }) => data.to !== author,
  question_is_to_author: ({ data, state, author }) => state.asked[data.position]!.to === author,
  question_is_of_author: (decision) =>
    decision.state.asked[decision.data.position]!.by === decision.author || decision.isParty("reviewer"),
  approval_is_missing: (decision) =>
    ["pending", "imported"].includes(decision.state.name) || !decision.approvalCounts(),
  approval_counts: (decision) => decision.approvalCounts(),
  verification_is_missing: (decision) =>
    decision.state.name !== "verified" || !decision.counts(decision.state.verification),
  waiver_is_missing: (decision) =>
    decision.state.criteria[decision.data.position] !== "waived" ||
    !decision.counts(decision.state.waivers[decision.data.position]!),
  waivers_count: (decision) => decision.waiversCount(),
  confirms_no_own_import: ({ state, author, senders, ledger }) =>
    state.importer === "" || !senders.includes(author) || ledger.hasRole(author, ["human"]),
  dependencies_exist: (decision) => decision.state.depends_on.every((name) => decision.exists(`handoff/${name}`)),
  dependencies_are_done: (decision) =>
    decision.state.depends_on.every((name) => ["verified", decision.state.unlock_at].includes(decision.dependency(name))),
  criteria_are_met: ({ state }) => state.criteria.every((mark) => mark === "checked" || mark === "waived"),
  replacement_is_another: ({ data, name }) => data.by !== name,
  replacement_exists: (decision) => decision.exists(`${decision.event.stream.split("/")[0]}/${decision.data.by}`),
  author_is_owner_or_reviewer: ({ ledger, author, state }) => author === state.owner || ledger.hasRole(author, REVIEWING),
  author_is_root_or_human: ({ ledger, author }) => author === "root" || ledger.hasRole(author, ["human"]),
  is_not_announced: ({ state }) => !state.is_announced,
  receiver_is_named: ({ data, state }) => data.to === state.receiver,
  target_exists: ({ data, event, ledger }) => ledger.streamOf(data.target) === event.stream,
  has_steps: ({ state }) => state.steps.length > 0,
  extension_is_not_empty: ({ steps }) => steps.length > 0,
  steps_are_new: ({ steps, state }) => new Set([...steps, ...state.steps]).size === steps.length + state.steps.length,
  step_exists: ({ data, state }) => state.steps.includes(data.step),
  dependencies_are_of_new_steps: ({ data, steps, state }) =>
    Object.entries<number[]>(data.dependencies ?? {}).every(
      ([step, on]) =>
        steps.includes(Number(step)) && on.every((wanted) => [...steps, ...state.steps].includes(wanted)),
    ),
  steps_form_no_cycle: ({ data }) => !formCycle(data.dependencies ?? {}),
  fields_agree: ({ data }) => fieldsAgree(data),
};
