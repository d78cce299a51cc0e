/** Express 4, whose types are near enough. */
declare module "express4" {
	export { default } from "express";
}
