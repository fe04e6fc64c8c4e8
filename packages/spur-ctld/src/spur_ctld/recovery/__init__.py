"""What becomes of runs whose agents or supervisors went away: cohorts, verdicts, policy."""
