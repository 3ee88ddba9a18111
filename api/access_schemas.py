"""Tokens and login links as JSON."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class LoginLink(BaseModel):
    url: str = Field(description="To be opened in a browser, once.")
    expires_at: datetime
