/** Returns bytes, or a text in UTF-8, in base64url without padding. */
export function base64url(of: Uint8Array | string): string {
	const bytes = typeof of === "string" ? new TextEncoder().encode(of) : of;
	return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""))
		.replaceAll("+", "-")
		.replaceAll("/", "_")
		.replaceAll("=", "");
}

/** Returns the SHA-256 of a text in base64url. */
export async function digest(text: string): Promise<string> {
	return base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))));
}

/** Returns one array of all bytes. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
	const all = new Uint8Array(parts.reduce((size, part) => size + part.byteLength, 0));
	let at = 0;
	for (const part of parts) {
		all.set(part, at);
		at += part.byteLength;
	}
	return all;
}
