/** The root of the repository: from dist-test/test, or as REPOSITORY says where the package was copied elsewhere. */
export const repository = process.env.REPOSITORY
	? new URL(`file://${process.env.REPOSITORY}/`)
	: new URL("../../../../../", import.meta.url);
