"""What happens by itself: sensors and a schedule that read the plan and the budget, and launch runs."""
