"""What happens by itself: sensors and a schedule that read the plan and the budget, and launch runs."""

from sensors.automation import Automations, automations

__all__ = ["Automations", "automations"]
