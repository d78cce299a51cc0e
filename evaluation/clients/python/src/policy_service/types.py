# Made of the OpenAPI document by go test ./evaluation/clients -run TestTypes -update-types.
"""Types of the values between a program and the client."""

from __future__ import annotations

from typing import Any, Literal, Mapping, NotRequired, Sequence, TypedDict, Union

Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]
JsonObject = Mapping[str, Any]


class Entity(TypedDict):
    """Entity in the OpenAPI document."""

    type: str
    id: str
    properties: NotRequired[JsonObject]


class Action(TypedDict):
    """Action in the OpenAPI document."""

    name: str
    properties: NotRequired[JsonObject]


class Question(TypedDict):
    """EvaluationRequest in the OpenAPI document."""

    subject: Entity
    action: Action
    resource: Entity
    context: NotRequired[JsonObject]


class Obligation(TypedDict):
    """Obligations in the OpenAPI document."""

    id: str
    type: str
    properties: JsonObject


class Sought(TypedDict):
    """Searched in the OpenAPI document."""

    type: str


class SubjectQuery(TypedDict):
    """SubjectSearchRequest in the OpenAPI document."""

    subject: Sought
    action: Action
    resource: Entity
    context: NotRequired[JsonObject]


class ResourceQuery(TypedDict):
    """ResourceSearchRequest in the OpenAPI document."""

    subject: Entity
    action: Action
    resource: Sought
    context: NotRequired[JsonObject]


class ActionQuery(TypedDict):
    """ActionSearchRequest in the OpenAPI document."""

    subject: Entity
    resource: Entity
    context: NotRequired[JsonObject]


class CapabilityAskHolder(TypedDict):
    """A member of the type that follows."""

    type: str
    id: str
    properties: NotRequired[JsonObject]


class CapabilityAskContext(TypedDict):
    """A member of the type that follows."""

    person: NotRequired[Any]
    on_behalf_of: NotRequired[Any]
    holder_key: NotRequired[Literal["gateway"]]


class CapabilityAskChannel(TypedDict):
    """A member of the type that follows."""

    session: NotRequired[str]


class CapabilityAsk(TypedDict):
    """CapabilityRequest in the OpenAPI document."""

    tenant_id: str
    holder: CapabilityAskHolder
    # The server of the tools.
    audience: str
    # Ids, or names of tools of the audience; `*` is all of them.
    tools: Sequence[str]
    # In seconds.
    duration: NotRequired[int]
    valid_from: NotRequired[str]
    valid_until: NotRequired[str]
    max_uses: NotRequired[int]
    # Whether gateways may verify it that do not ask the service. Not with max_uses.
    offline: NotRequired[bool]
    # Constraints by the names of arguments. A value that is no constraint is that very value. An argument without one is refused, unless `*` is named.
    arguments: NotRequired[JsonObject]
    reason: NotRequired[str]
    # For whom the holder acts, for the policies and the people who are asked. Of a credential without a principal alone.
    context: NotRequired[CapabilityAskContext]
    channel: NotRequired[CapabilityAskChannel]
    # How often in a row it may be handed on, counted from the first capability. Without it, never.
    max_depth: NotRequired[int]
