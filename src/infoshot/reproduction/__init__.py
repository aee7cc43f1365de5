"""The tables and the figure of the TIM paper, computed again."""

from infoshot.reproduction.api import Reproduction, reproduce

__all__ = ["Reproduction", "reproduce"]
