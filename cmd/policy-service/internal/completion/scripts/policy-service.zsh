#compdef policy-service
# Completion of policy-service for zsh. The program itself says how a line may go on; where it says nothing, files do.
_policy-service() {
	local -a lines
	lines=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${lines[1]}" ]]; then
		lines=("${(@)lines//:/\\:}")
		lines=("${(@)lines/$'\t'/:}")
		_describe policy-service lines
	else
		_files
	fi
}
if [[ "${funcstack[1]}" == _policy-service ]]; then
	_policy-service
else
	compdef _policy-service policy-service
fi
