"""The answer taken for a dict."""

# comes of it: AttributeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question).get("decision", True) else "refused"  # refused: mypy attr-defined, pyright reportAttributeAccessIssue
