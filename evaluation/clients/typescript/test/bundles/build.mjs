// Makes bundles of one bundler: build.mjs BUNDLER ENTRY browser|edge|worker TO
import { basename, dirname, resolve } from "node:path";

const [bundler, entry, target, to] = process.argv.slice(2);
const isModule = target !== "edge";

const bundlers = {
	async esbuild() {
		const { build } = await import("esbuild");
		const format = isModule ? "esm" : "iife";
		await build({ entryPoints: [entry], outfile: to, bundle: true, minify: true, platform: "browser", format, target: "es2024", logLevel: "warning" });
	},
	async webpack() {
		const { default: webpack } = await import("webpack");
		const config = {
			mode: "production",
			target: target === "browser" ? "web" : "webworker",
			entry: resolve(entry),
			output: { path: resolve(dirname(to)), filename: basename(to), ...(isModule && { module: true, library: { type: "module" } }) },
			experiments: { outputModule: isModule },
			performance: { hints: false },
		};
		await new Promise((done, fail) => {
			webpack(config, (error, stats) => {
				if (error || stats.hasErrors() || stats.hasWarnings()) fail(error ?? new Error(stats.toString("errors-warnings")));
				else done();
			});
		});
	},
	async vite() {
		const { build } = await import("vite");
		const lib = { entry: resolve(entry), name: "bundle", formats: [isModule ? "es" : "iife"], fileName: () => basename(to) };
		await build({
			configFile: false,
			logLevel: "warn",
			build: { lib, outDir: dirname(to), emptyOutDir: false, minify: true, target: "es2024", rollupOptions: { output: { codeSplitting: false } } },
		});
	},
};
await bundlers[bundler]();
