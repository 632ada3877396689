"""What a node measures, says of itself and logs. Nothing here changes anything."""
