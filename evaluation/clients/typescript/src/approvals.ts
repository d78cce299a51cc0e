/** An approval request that was filed at a PDP. It is JSON, so that another process can go on with it. It permits nothing. */
export interface Task {
	readonly version: 1;
	readonly pdp: string;
	readonly id: string;
	readonly status_endpoint: string;
	readonly cancel?: string;
	readonly expires_at?: string;
}

/** How long to wait for people, in milliseconds alone or with more. */
export type Wait =
	| number
	| {
			/** Milliseconds. */
			timeout: number;
			/** Why, for the people who decide. */
			justification?: string;
			/** Leaves it to the PDP to find equal approval requests. */
			join?: boolean;
			/** Is called with the task before the wait goes on. If it fails, so does the wait. */
			keep?: (task: Task) => void | Promise<void>;
			/** Goes on with this task, and asks nobody anew. */
			resume?: Task;
	  };
