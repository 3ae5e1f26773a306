"""The authority that issues tokens, the metadata service, and the description of the cloud.

Owns tokens and the audience they must be for.
"""

import secrets
import time
import urllib.parse

from dialect import Dialect
from wire import Answer, Exchange

TENANT = "11111111-2222-3333-4444-555555555555"
CLIENT = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
SECRET = "a secret of this test"
AUDIENCE = "https://management.foreign"


class Authority:
    """`url` is where it is served, `machine` what the metadata service says of its machine."""

    def __init__(self, dialect: Dialect, url: str, audience: str, machine: dict):
        self.dialect, self.url, self.audience, self.machine = dialect, url, audience, machine
        # Token -> its audience.
        self.tokens: dict[str, str] = {}
        self.requests: list[dict] = []
        self.adfs = False

    def token(self, path: str, raw: bytes) -> Answer:
        form = {name: values[0] for name, values in urllib.parse.parse_qs(raw.decode()).items()}
        self.requests.append({"path": path, **form})
        if form.get("grant_type") != "client_credentials" or form.get("client_id") != CLIENT:
            return _refused(400, "unauthorized_client", 700016, "The application was not found in the directory.")
        if form.get("client_secret") != SECRET:
            return _refused(401, "invalid_client", 7000215, "Invalid client secret provided.")
        # Documented: what stands before the last slash of a scope is the audience.
        wanted = form.get("resource") if "/v2.0/" not in path else form.get("scope", "").rpartition("/")[0]
        if not wanted:
            return _refused(400, "invalid_request", 900144, "The request body must contain a scope or a resource.")
        return Answer(200, self._grant(wanted, strings="/v2.0/" not in path))

    def _grant(self, audience: str, strings: bool) -> dict:
        token = secrets.token_urlsafe(24)
        self.tokens[token] = audience
        if strings:
            # Documented: v1 writes its numbers as strings; so does the metadata service.
            now = int(time.time())
            return {
                "token_type": "Bearer",
                "expires_in": "3599",
                "ext_expires_in": "3599",
                "expires_on": str(now + 3599),
                "not_before": str(now),
                "resource": audience,
                "access_token": token,
            }
        if self.dialect.rich_tokens:
            return {
                "access_token": token,
                "refresh_in": 1800,
                "expires_in": 3599,
                "token_type": "bearer",
                "scope": "x",
                "id_token": None,
            }
        return {"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": token}

    def identity(self, exchange: Exchange, headers) -> Answer:
        if headers.get("Metadata", "").lower() != "true":
            return Answer(400, {"error": "invalid_request", "error_description": "Required metadata header missing"})
        resource = urllib.parse.parse_qs(exchange.query).get("resource", [""])[0]
        return Answer(200, {**self._grant(resource, strings=True), "refresh_token": "", "client_id": CLIENT})

    def instance(self, headers) -> Answer:
        if headers.get("Metadata", "").lower() != "true":
            return Answer(400, {"error": "Bad request. Required metadata header not specified"})
        return Answer(200, {"compute": self.machine})

    def endpoints(self) -> Answer:
        """The answer of /metadata/endpoints."""
        login = f"{self.url}/adfs/" if self.adfs else f"{self.url}/"
        authentication = {"loginEndpoint": login, "audiences": [self.audience]}
        if self.dialect.endpoints == "array":
            other = {
                "name": "Other",
                "resourceManager": "https://other.example/",
                "authentication": authentication,
                "suffixes": {"storage": "other.example"},
            }
            foreign = {
                "name": "Foreign",
                "portal": "https://portal.foreign/",
                "resourceManager": self.url,
                "authentication": {**authentication, "tenant": "common", "identityProvider": "AAD"},
                "suffixes": {"storage": "core.foreign"},
            }
            return Answer(200, [other, foreign])
        return Answer(
            200,
            {
                "galleryEndpoint": "https://gallery.foreign/",
                "graphEndpoint": "https://graph.foreign/",
                "portalEndpoint": "https://portal.foreign/",
                "authentication": authentication,
            },
        )

    def endpoint_file(self) -> dict:
        """What AZURE_ENVIRONMENT_FILEPATH names. Source: go-autorest's Environment."""
        return {
            "name": "AzureStackCloud",
            "managementPortalURL": "https://portal.foreign/",
            "resourceManagerEndpoint": f"{self.url}/",
            "activeDirectoryEndpoint": f"{self.url}/",
            "serviceManagementEndpoint": self.audience,
            "tokenAudience": self.audience,
            "storageEndpointSuffix": "core.foreign",
            "galleryEndpoint": "https://gallery.foreign/",
        }


def _refused(status: int, error: str, number: int, text: str) -> Answer:
    """An error in the authority's words."""
    return Answer(status, {"error": error, "error_description": f"AADSTS{number}: {text}", "error_codes": [number]})
