# Completion of policy-service for fish. The program itself says how a line may go on; where it says nothing, files do.
# It is the one that is installed: a file of that name in this directory is not run before its line is.
function __policy_service
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	set -l lines (command policy-service completion fish -- $words[2..-1] "$last" 2>/dev/null)
	if set -q lines[1]
		printf '%s\n' $lines
	else
		__fish_complete_path "$last"
	end
end
complete -c policy-service -f -a '(__policy_service)'
