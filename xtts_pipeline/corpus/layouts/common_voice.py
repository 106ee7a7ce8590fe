"""Read Common Voice: `train.tsv`, `dev.tsv`, `test.tsv` or `validated.tsv` beside `clips/`."""

from pathlib import Path

from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.rows import SOUND_SUFFIXES, CorpusRow, RowCollector
from xtts_pipeline.corpus.tables import read_header, read_table

CLIPS = "clips"
SPLIT_TABLES = ("train.tsv", "dev.tsv", "test.tsv")
WHOLE_TABLE = "validated.tsv"
COLUMNS = frozenset({"path", "sentence"})


class CommonVoice:
    """Reads the tables of the splits, else all validated clips; the speaker is `client_id`, the language `locale`."""

    name = "common_voice"
    looked_for = f"{', '.join(SPLIT_TABLES)} or {WHOLE_TABLE} (path, sentence, client_id, locale) beside {CLIPS}/"
    parts = ((*SPLIT_TABLES, WHOLE_TABLE), (CLIPS,))

    def find(self, source: Path) -> FoundCorpus | None:
        """Return the folder with its tables; `source` may be one of them."""
        root = source.parent if source.is_file() else source
        names = (source.name,) if source.is_file() else SPLIT_TABLES
        tables = [root / name for name in names if set(read_header(root / name).columns) >= COLUMNS]
        if not tables and set(read_header(root / WHOLE_TABLE).columns) >= COLUMNS:
            tables = [root / WHOLE_TABLE]
        return FoundCorpus(root, tables) if tables and (root / CLIPS).is_dir() else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add each row of each table."""
        for table in found.tables:
            split = table.stem if table.name in SPLIT_TABLES else ""
            for where, fields in read_table(table, rows):
                path = fields["path"].strip()
                stem = path.rpartition(".")[0] if path.lower().endswith(SOUND_SUFFIXES) else path
                speaker, language = fields.get("client_id", ""), fields.get("locale", "")
                rows.add(
                    CorpusRow(
                        where, stem, f"{CLIPS}/{path}" if path else "", fields["sentence"], speaker, language, split
                    )
                )
