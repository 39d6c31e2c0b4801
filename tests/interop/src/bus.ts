// The bus: submissions and reads over NATS (proto/README.md, section 9).

import { connect, type NatsConnection, nkeyAuthenticator } from "@nats-io/transport-node";

const answer_max_ms = 20_000;

export class Bus {
  private constructor(
    private readonly connection: NatsConnection,
    private readonly ledger: string,
    private readonly agent: string,
  ) {}

  /** Connect as an agent, by the nkey of its bus key: never by the key that signs its events. */
  static async open(url: string, ledger: string, agent: string, nkeySeed: string): Promise<Bus> {
    const authenticator = nkeyAuthenticator(new TextEncoder().encode(nkeySeed));
    const connection = await connect({ servers: url, authenticator, inboxPrefix: `_INBOX_${agent}`, reconnect: false });
    return new Bus(connection, ledger, agent);
  }

  submit(submission: unknown): Promise<unknown> {
    return this.request(`submit.${this.agent}`, submission);
  }

  read(verb: string, given: Record<string, unknown> = {}): Promise<unknown> {
    return this.request(`read.${this.agent}.${verb}`, given);
  }

  close(): Promise<void> {
    return this.connection.close();
  }

  private async request(subject: string, payload: unknown): Promise<unknown> {
    const options = { timeout: answer_max_ms };
    const answer = await this.connection.request(`deedbook.${this.ledger}.${subject}`, JSON.stringify(payload), options);
    return answer.json();
  }
}
