"""The dependency of FastAPI as a decorator."""

# comes of it: TypeError
from fastapi import FastAPI
from fastapi.testclient import TestClient

from policy_service import Client, Question
from policy_service.fastapi import protect


def careless(client: Client, question: Question) -> str:
    app = FastAPI()

    @app.get("/")  # refused: mypy arg-type, mypy type-var, pyright reportArgumentType
    @protect(client, lambda request: question)  # refused: pyright reportArgumentType
    def route() -> str:
        return "acted"

    return TestClient(app).get("/").text
