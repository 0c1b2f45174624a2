"""What runs croupier: service files, one service, a deployment on one machine, the gateway, the participants' page."""
