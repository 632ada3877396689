"""What a node tells the leader of the metadata repository without being asked.

That it is there, what it holds durably, and what retention may drop. The leader
decides; nothing here waits for a client.
"""
