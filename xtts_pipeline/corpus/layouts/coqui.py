"""Read Coqui's tables with the header `audio_file|text|speaker_name`, as the XTTS fine-tuning demo writes them."""

from pathlib import Path

from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.layouts.manifest import id_of
from xtts_pipeline.corpus.rows import CorpusRow, RowCollector
from xtts_pipeline.corpus.tables import find_tables, read_header, read_table, split_in_name

COLUMNS = frozenset({"audio_file", "text"})


class Coqui:
    """The id is the sound's path without its suffix; the table's name may give the split: metadata_eval.csv."""

    name = "coqui"
    looked_for = "a table with the header audio_file|text|speaker_name"
    parts = (("metadata*.csv",),)

    def find(self, source: Path) -> FoundCorpus | None:
        """Return the table, or the folder's tables."""
        if source.is_file():
            return FoundCorpus(source.parent, (source,)) if set(read_header(source).columns) >= COLUMNS else None
        tables = find_tables(source, COLUMNS)
        return FoundCorpus(source, tables) if tables else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add each row of each table."""
        for table in found.tables:
            split = split_in_name(table)
            for where, fields in read_table(table, rows):
                audio = fields["audio_file"].strip()
                rows.add(
                    CorpusRow(where, id_of(audio), audio, fields["text"], fields.get("speaker_name", ""), split=split)
                )
