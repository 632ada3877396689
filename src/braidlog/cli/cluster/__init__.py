"""Commands that run the nodes of a cluster, and those that show and change it.

What works on the directories of dead nodes is in `damage`.
"""
