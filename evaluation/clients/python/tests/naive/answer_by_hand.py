"""An answer made by hand."""

# comes of it: TypeError
from policy_service import Answer, Client, Question


def careless(client: Client, question: Question) -> str:
    answer = Answer(True)  # refused: mypy arg-type, mypy call-arg, pyright reportCallIssue
    return "acted" if answer.permitted else "refused"
