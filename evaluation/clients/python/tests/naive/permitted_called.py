"""A property taken for a method."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question).permitted() else "refused"  # refused: mypy operator, pyright reportCallIssue
