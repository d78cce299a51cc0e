"""The answer read as the JSON of the wire."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question)["decision"] else "refused"  # refused: mypy index, pyright reportIndexIssue
