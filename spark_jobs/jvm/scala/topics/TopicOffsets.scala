package tidemark.topics

import java.time.Duration
import java.util.{Collections, Properties}

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.kafka.clients.consumer.KafkaConsumer
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TimeoutException
import org.apache.kafka.common.serialization.ByteArrayDeserializer
import org.apache.spark.sql.api.java.UDF1

import scala.jdk.CollectionConverters._

/** What Kafka says of a topic: per partition its first and its next offset, and the first ones at given times.
  *
  * A function of SQL, so that it is asked through Spark Connect, by the client that Spark's own reader uses, with the
  * same settings. It takes {"client": {setting: text}, "topic": text, "times_ms": [number]} and gives
  * {"partitions": {number: {"first": offset, "next": offset, "at": {time: offset}}}}, where a time has no offset if the
  * partition has no message at or after it; or {"error": class, "message": text}.
  *
  * Kafka's index by time counts what is no message, too: a mark that ends a transaction has the broker's time, which may
  * be years after that of the messages around it. So where the index points to, the messages are read on from there.
  */
class TopicOffsets extends UDF1[String, String] {

  override def call(asked: String): String = {
    val json = new ObjectMapper()
    val answer = json.createObjectNode()
    try {
      val request = json.readTree(asked)
      val properties = new Properties()
      request.get("client").properties().forEach(one => properties.put(one.getKey, one.getValue.asText))
      val consumer = new KafkaConsumer[Array[Byte], Array[Byte]](
        properties,
        new ByteArrayDeserializer,
        new ByteArrayDeserializer
      )
      try {
        val topic = request.get("topic").asText
        val found = Option(consumer.partitionsFor(topic)).map(_.asScala.toSeq).getOrElse(Seq.empty)
        val partitions = found.map(one => new TopicPartition(topic, one.partition))
        val first = consumer.beginningOffsets(partitions.asJava)
        val next = consumer.endOffsets(partitions.asJava)
        val of = answer.putObject("partitions")
        partitions.foreach { one =>
          val node = of.putObject(one.partition.toString)
          node.put("first", first.get(one).longValue)
          node.put("next", next.get(one).longValue)
          val at = node.putObject("at")
          var reached = first.get(one).longValue
          request.get("times_ms").asScala.map(_.asLong).toSeq.sorted.foreach { time =>
            val asked = Collections.singletonMap(one, java.lang.Long.valueOf(time))
            Option(consumer.offsetsForTimes(asked).get(one)).foreach { hit =>
              // what is at or after a later time is so for an earlier one, too
              reached = firstMessage(consumer, one, time, reached.max(hit.offset), next.get(one).longValue)
              if (reached < next.get(one).longValue) at.put(time.toString, reached)
            }
          }
        }
      } finally consumer.close()
    } catch {
      case failure: Exception =>
        answer.removeAll()
        answer.put("error", failure.getClass.getSimpleName)
        val causes = Iterator.iterate[Throwable](failure)(_.getCause).takeWhile(_ != null).take(5)
        answer.put("message", causes.map(_.getMessage).mkString(": "))
    }
    json.writeValueAsString(answer)
  }

  /** The first message from `begin` on whose timestamp is `time` or later; `end` if there is none. */
  private def firstMessage(
      consumer: KafkaConsumer[Array[Byte], Array[Byte]],
      of: TopicPartition,
      time: Long,
      begin: Long,
      end: Long
  ): Long = {
    consumer.assign(Collections.singletonList(of))
    consumer.seek(of, begin)
    var last = System.nanoTime
    while (consumer.position(of) < end) {
      val before = consumer.position(of)
      val records = consumer.poll(Duration.ofSeconds(1)).records(of).asScala
      records.find(one => one.timestamp >= time).foreach(one => return one.offset.min(end))
      if (consumer.position(of) > before) last = System.nanoTime
      if (System.nanoTime - last > Patience) throw new TimeoutException(s"no messages of $of from $before on")
    }
    end
  }

  private val Patience = 20L * 1000 * 1000 * 1000
}
