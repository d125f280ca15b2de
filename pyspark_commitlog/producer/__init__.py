"""The Python client that writes: ``Producer`` (Kafka: ``KafkaProducer``). No Spark needed."""
