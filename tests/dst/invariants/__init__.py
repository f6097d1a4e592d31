"""What must hold in every world, whatever goes wrong in it; read from the log and the cluster's truth alone."""
