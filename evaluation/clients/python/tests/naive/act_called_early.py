"""The act's result in the place of the act."""

# comes of it: TypeError
from policy_service import Client, Question


def act() -> str:
    return "acted"


def careless(client: Client, question: Question) -> str:
    return client.enforce(question, act())  # refused: mypy call-overload, mypy no-any-return, pyright reportArgumentType, pyright reportCallIssue
