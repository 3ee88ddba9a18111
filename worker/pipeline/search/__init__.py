"""The search of stage ``tune``: rounds of trials, on one worker or shared among several."""
