"""The event-driven loop between the state and the pure scheduler."""
