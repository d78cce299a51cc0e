#compdef policy-service
# Completion of policy-service for zsh. The program itself says how a line may go on; where it says nothing, files do.
# It is the one that is installed: a file of that name in this directory is not run before its line is.
_policy-service() {
	local -a lines
	lines=("${(@f)$(command policy-service completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
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
