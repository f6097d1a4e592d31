"""Commands that run voda (`up`, `serve`), configure it (`settings`, `token`), or launch a program (`run`)."""
