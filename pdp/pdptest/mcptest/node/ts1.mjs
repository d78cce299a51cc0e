// A client by @modelcontextprotocol/sdk, which knows the era with a handshake alone.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { run } from "./client.mjs";

await run(async (url, options, says) => {
  const transport = new StreamableHTTPClientTransport(url, options);
  const client = new Client({ name: "ts1", version: "1.0.0" }, says);
  await client.connect(transport);
  return {
    version: () => transport.protocolVersion,
    server: () => client.getServerVersion()?.name,
    list: (cursor) => client.listTools({ cursor }),
    call: (params, options) => client.callTool(params, undefined, options),
    asked: (handler) => client.setRequestHandler(ElicitRequestSchema, handler),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
});
