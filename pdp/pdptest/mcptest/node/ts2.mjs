// A client by @modelcontextprotocol/client, which finds out the era of the server.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { run } from "./client.mjs";

await run(async (url, options, says) => {
  const client = new Client({ name: "ts2", version: "1.0.0" }, { versionNegotiation: { mode: "auto" }, ...says });
  await client.connect(new StreamableHTTPClientTransport(url, options));
  return {
    version: () => client.getNegotiatedProtocolVersion(),
    server: () => client.getServerVersion()?.name,
    list: (cursor) => client.listTools(cursor === undefined ? undefined : { cursor }),
    call: (params, options) => client.callTool(params, options),
    asked: (handler) => client.setRequestHandler("elicitation/create", handler),
    close: () => client.close(),
  };
});
