import type { Capability, CapabilityAsk, Client, EnforceOptions } from "../src/index.js";

/** Asks for a capability for a fresh key. */
export async function ask(client: Client, ask: CapabilityAsk, options: EnforceOptions): Promise<Capability> {
	return client.requestCapability({ thumbprint: "" }, ask, options);
}
