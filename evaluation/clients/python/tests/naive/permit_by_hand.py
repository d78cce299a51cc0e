"""A permit made by hand."""

# comes of it: TypeError
from policy_service import Client, Permit, Question


def careless(client: Client, question: Question) -> str:
    permit = Permit()  # refused: mypy call-arg, pyright reportCallIssue
    return "acted" if permit else "refused"  # refused: mypy truthy-bool
