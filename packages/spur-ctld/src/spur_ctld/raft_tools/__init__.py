"""`spurctld raft ...`: making, inspecting and changing the directories of a group of controllers."""
