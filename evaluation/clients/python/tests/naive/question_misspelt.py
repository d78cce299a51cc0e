"""A question with a misspelt member."""

# comes of it: Undecided
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return client.enforce({**question, "ressource": question["resource"]}, lambda permit: "acted")  # refused: mypy arg-type, mypy call-overload, mypy no-any-return, pyright reportArgumentType, pyright reportCallIssue
