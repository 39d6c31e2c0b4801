// The official client in TypeScript: prints the tools of a server and the answers to some calls, as JSON.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, token, calls] = process.argv.slice(2);
const client = new Client({ name: "typescript", version: "1" });
const headers = { Authorization: `Bearer ${token}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const answers = [];
for (const [name, args] of JSON.parse(calls)) {
  answers.push(await client.callTool({ name, arguments: args }));
}
console.log(JSON.stringify({ tools, answers }));
await client.close();
