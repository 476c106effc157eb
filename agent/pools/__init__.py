"""The worker processes of a run: started, watched, replaced, ended. And their serial twin."""
