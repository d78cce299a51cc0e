# Completion of policy-service for bash. The program itself says how a line may go on; where it says nothing, files do.
# It is the one that is installed: a file of that name in this directory is not run before its line is.
_policy_service() {
	local line
	COMPREPLY=()
	while IFS= read -r line; do
		COMPREPLY+=("${line%%$'\t'*}")
	done < <(command policy-service completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _policy_service policy-service
