import { type Capability, type CapabilityAsk, type Client, type EnforceOptions, Holder } from "../src/index.js";

/** Asks for a capability for a fresh key. */
export async function ask(client: Client, ask: object, options: EnforceOptions): Promise<Capability> {
	return client.requestCapability(await Holder.generate(), ask as CapabilityAsk, options);
}
