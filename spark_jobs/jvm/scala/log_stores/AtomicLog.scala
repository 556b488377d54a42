package org.apache.spark.sql.hive.thriftserver.tidemark

import java.lang.{Boolean => JBoolean}
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}
import java.util.{Iterator => JIterator, UUID}

import io.delta.storage.HDFSLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** Delta's log on a file system of this machine: a version is created where there is none, or not at all.
  *
  * Delta's own store looks whether the version is there and then renames a file to it, under a lock of its JVM: what
  * another process has created in between is overwritten. A hard link is made or refused in one step, whoever asks.
  */
class AtomicLog(conf: Configuration) extends HDFSLogStore(conf) {
  override def write(path: Path, actions: JIterator[String], overwrite: JBoolean, hadoopConf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, hadoopConf)
    else {
      val version = Paths.get(path.toUri.getPath)
      Files.createDirectories(version.getParent)
      val draft = version.resolveSibling(s".${version.getFileName}.${UUID.randomUUID}.tmp")
      try {
        val channel = FileChannel.open(draft, CREATE_NEW, WRITE)
        try {
          while (actions.hasNext) {
            val line = ByteBuffer.wrap((actions.next() + "\n").getBytes(UTF_8))
            while (line.hasRemaining) channel.write(line)
          }
          channel.force(true)
        } finally channel.close()
        Files.createLink(version, draft)
      } finally Files.deleteIfExists(draft)
    }
}
