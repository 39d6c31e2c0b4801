// Live updates, keyboard shortcuts and the filter. Every page works without this script, and it decides nothing. It never
// makes markup from strings: new content is a document rendered by the server, parsed without scripts (XMLHttpRequest).
"use strict";

const body = document.body, pending = new Set();
let head = Number(body.dataset.head), shownHead = head, isFetching = false, isLeader = false;  // shownHead: all parts show it

function showStatus(style, text, live = document.getElementById("live")) {
  if (live && live.textContent !== text) { live.className = "live " + style; live.textContent = text; }
}

// A part of the page is not replaced while the user points at it, has a field of it focused, selected rows of it, or may
// decide in it: users must sign exactly what they read.
function isInUse(part) {
  return part.querySelector("form.decide, .pick:checked") || part.matches(":hover:not(#head, [data-polls])") || part.contains(document.activeElement) && part.querySelector("input, textarea, form");
}
// A form stays as it was read. If its thing has another number of entries by now, it says so before anybody signs in vain.
function warn(fresh) {
  const entries = (form) => form?.elements.entries?.value;
  for (const notice of document.querySelectorAll("form.decide .stale")) notice.hidden = entries(notice.closest("form")) === entries(fresh.getElementById(notice.closest("form").id));
}
function put(fresh) {
  document.title = fresh.title;
  warn(fresh);
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.isEqualNode(part)) { pending.delete(part.id); continue; }
    if (isInUse(part)) { pending.add(part.id); continue; }
    pending.delete(part.id);
    const known = new Set([...part.querySelectorAll("[id]")].map((element) => element.id)), focused = document.activeElement?.closest("[id]")?.id;
    const copy = document.importNode(other, true), folds = copy.querySelectorAll("details");
    part.querySelectorAll("details").forEach((fold, at) => { if (folds[at]) folds[at].open = fold.open; });
    for (const row of copy.querySelectorAll("li[id], tr[id]")) if (!known.has(row.id)) row.classList.add("new");
    part.replaceWith(copy);
    if (focused && known.has(focused)) document.getElementById(focused)?.querySelector("[data-row], a")?.focus({ preventScroll: true });
  }
  filter();
}
function refresh() {
  if (isFetching || document.hidden || !(Number(body.dataset.head) < head)) return;
  isFetching = true;
  const requested = head, address = location.href, request = new XMLHttpRequest();
  request.open("GET", address);
  request.responseType = "document";
  request.onload = () => { if (request.status === 200 && request.response) { put(request.response); if (address === location.href) body.dataset.head = requested; if (!pending.size) shownHead = requested; showLive(); } };
  request.onloadend = () => { isFetching = false; if (request.status === 200) refresh(); };
  request.send();
}
function reload() { body.dataset.head = -1; refresh(); }
function showLive() { if ("follows" in body.dataset) showStatus("on", pending.size && head > shownHead ? "live, " + (head - shownHead) + " new" : "live"); }
function advance(index) {
  if (index > head) head = index;
  showLive();
  refresh();
}
function follow(channel) {
  // One tab holds the stream, because a browser opens only six connections to one server; it informs the other tabs.
  let source, timer;
  isLeader = true;
  const open = () => {
    source?.close();
    source = new EventSource("/live");
    const alive = () => { clearTimeout(timer); timer = setTimeout(open, 25000); };
    source.addEventListener("position", (event) => { alive(); channel.postMessage(event.data); advance(Number(event.data)); });
    source.onerror = () => { const why = source.readyState === 2 ? "logged out" : "reconnecting"; showStatus("lost", why); channel.postMessage(why); if (source.readyState === 2) { clearTimeout(timer); timer = setTimeout(open, 3000); } };
    alive();
  };
  open();
  // A page that is left closes its stream, else Firefox reports an error. After a download the page is still here.
  addEventListener("beforeunload", () => { source.close(); clearTimeout(timer); timer = setTimeout(open, 1000); });
  return new Promise(() => {});
}

// A typed note stays in this browser until it is signed, so that it survives the end of a login. It is only text: its
// author presses the button again. Each person has their own, and a note that is on the page already counts more.
const me = document.querySelector(".top .me")?.textContent, notes = "form.decide textarea[name=note]";
function draftOf(note) { return "note " + me + " " + note.form.getAttribute("action"); }
function keepDraft(note) { if (note.value) localStorage.setItem(draftOf(note), note.value); else localStorage.removeItem(draftOf(note)); }
function restoreDrafts() {
  for (const note of document.querySelectorAll(notes)) {
    const draft = !note.value && localStorage.getItem(draftOf(note));
    if (draft) { note.value = draft; note.form.querySelector(".kept").hidden = false; }
  }
}
if (me && document.querySelector(".notice.ok")) {  // the note that was sent last is signed
  localStorage.removeItem(sessionStorage.getItem("sent"));
  sessionStorage.removeItem("sent");
}
restoreDrafts();
document.addEventListener("input", ({ target }) => { if (target.matches(notes)) keepDraft(target); });
document.addEventListener("submit", ({ target }) => {
  if (target.getAttribute("action") === "/logout") for (const name of Object.keys(localStorage)) if (name.startsWith("note ")) localStorage.removeItem(name);
  const note = target.querySelector("textarea[name=note]");
  if (!note || !target.matches("form.decide")) return;
  keepDraft(note);
  sessionStorage.setItem("sent", draftOf(note));
});

// A row of the queue opens in its place: the page that its link leads to is fetched, and only the queue is replaced.
let shownAddress = location.pathname + location.search;
function openRow(address, isNew) {
  const url = new URL(address, location.href), name = decodeURIComponent(url.hash.slice(1)), request = new XMLHttpRequest();
  const leave = () => location.assign(address);
  request.open("GET", url.pathname + url.search);
  request.responseType = "document";
  request.onerror = leave;
  request.onload = () => {
    const queue = document.getElementById("queue"), fresh = request.status === 200 && request.response?.getElementById("queue");
    if (!queue || !fresh) { leave(); return; }
    const top = document.getElementById(name)?.getBoundingClientRect().top;
    const picked = new Set([...queue.querySelectorAll(".pick:checked")].map((pick) => pick.value));
    queue.replaceWith(document.importNode(fresh, true));
    for (const pick of document.querySelectorAll(".pick")) pick.checked = picked.has(pick.value);
    if (isNew) history.pushState(null, "", address);
    shownAddress = url.pathname + url.search;
    restoreDrafts();
    pending.delete("queue");
    const row = document.getElementById(name);
    row?.focus({ preventScroll: true });
    if (row && top !== undefined) scrollBy(0, row.getBoundingClientRect().top - top);
    row?.closest(".row.open")?.scrollIntoView({ block: "nearest" });
  };
  request.send();
}
document.addEventListener("click", (event) => {
  // a click beside the title opens the row, too, unless it selects text or is on something else to click on
  const cells = event.target.closest("a, button, input, label") || getSelection().toString() ? null : event.target.closest(".queue .cells");
  const link = event.target.closest(".queue [data-row]") ?? cells?.querySelector("[data-row]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  openRow(link.href, true);
});
addEventListener("popstate", () => { if (location.pathname + location.search !== shownAddress) openRow(location.href, false); });

if ("follows" in body.dataset && "EventSource" in window) {
  const channel = new BroadcastChannel("deedbook");
  channel.onmessage = ({ data }) => {
    if (isFinite(data)) advance(Number(data));
    else if (data !== "hello") showStatus("lost", data);
    else if (isLeader) channel.postMessage(String(head));
  };
  channel.postMessage("hello");
  if (navigator.locks) navigator.locks.request("deedbook-live", () => follow(channel)); else follow(channel);
  document.addEventListener("visibilitychange", refresh);
  // A part that shows progress (data-polls) is reloaded every second until the progress is complete.
  setInterval(() => { if (document.querySelector("[data-polls]")) { reload(); } }, 1000);
  document.addEventListener("mouseout", () => { if (pending.size) { reload(); } });
}
function filter() {
  const field = document.querySelector(".filter input"), text = field?.value.toLowerCase() ?? "";
  if (field) field.parentElement.hidden = false;
  for (const row of document.querySelectorAll("[data-filter]")) row.hidden = !row.textContent.toLowerCase().includes(text);
}
document.addEventListener("input", ({ target }) => {
  if (target.closest(".filter")) filter();
  if (!("scrub" in target.dataset)) return;
  // A slider through the log: the page follows it, and the address can be shared.
  history.replaceState(null, "", "?" + new URLSearchParams(new FormData(target.form)));
  reload();
});
// The proof that unlocks the key stays in this origin's storage: browsers send cookies to servers on other ports, too.
const unlocked = /^#unlocked=([\w-]+)$/.exec(location.hash)?.[1];
if (unlocked) { localStorage.setItem("unlocked", unlocked); history.replaceState(null, "", location.pathname + location.search); }
document.addEventListener("submit", ({ target }) => { if (target.elements.proof) target.elements.proof.value = localStorage.getItem("unlocked"); });
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && isTyping) event.target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const open = document.querySelector(".row.open [data-row]");
  const rows = [...document.querySelectorAll("[data-row]")], near = document.activeElement.closest("li, tr")?.querySelector("[data-row]");
  const at = rows.indexOf(near ?? open);
  const pages = document.querySelectorAll("header nav a");
  if (event.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (event.key === "k") rows[Math.max(at - 1, 0)]?.focus();
  else if (event.key === "d") open?.closest(".row").querySelector("textarea")?.focus();
  else if (event.key === "/") (document.getElementById("queue-text") ?? document.getElementById("filter") ?? document.querySelector("[type=search]"))?.focus();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (pages[Number(event.key) - 1]) pages[Number(event.key) - 1].click();
  else return;
  event.preventDefault();
});
// The time for which the key stays unlocked: counted from the server's figure, not from this machine's clock.
const left = document.getElementById("left"), end = performance.now() + 1000 * left?.dataset.left;
function count() {
  const seconds = Math.max(0, Math.ceil((end - performance.now()) / 1000));
  left.textContent = seconds ? Math.floor(seconds / 60) + ":" + String(seconds % 60).padStart(2, "0") : "expired";
  if (seconds) setTimeout(count, 1000);
}
if (left) count();
filter();
// The chosen box, and the menu's item, are brought into view within their own area: the window stays at its top.
for (const chosen of document.querySelectorAll(".node.chosen, .top nav [aria-current]")) {
  const area = chosen.closest(".scroll, nav"), box = chosen.getBoundingClientRect(), view = area.getBoundingClientRect();
  const past = (start, end) => Math.max(0, box[end] - view[end]) + Math.min(0, box[start] - view[start]);
  area.scrollBy(past("left", "right"), past("top", "bottom"));
}
