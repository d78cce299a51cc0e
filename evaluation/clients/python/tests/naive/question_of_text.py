"""A question as JSON text."""

# comes of it: Undecided
import json

from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return client.enforce(json.dumps(question), lambda permit: "acted")  # refused: mypy call-overload, mypy no-any-return, pyright reportArgumentType, pyright reportCallIssue
