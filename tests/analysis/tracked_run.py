"""A tracked run in a process of its own, in which nothing but this machine can be reached; what was written is printed.

    python tracked_run.py TRACKER FOLDER TURN [TURN …]      a turn: the first and last of its generations, like 0-2
"""
import json
import socket
import sys
from pathlib import Path

reached = []


def guard():
    "Note whoever is called outside this machine, and let nobody be reached"
    connect, look_up = socket.socket.connect, socket.getaddrinfo
    def checked(own, address):
        if own.family != socket.AF_UNIX and address[0] not in ('127.0.0.1', '::1', 'localhost'):
            reached.append(str(address))
            raise OSError('no network here')
        return connect(own, address)
    def named(host, *rest, **how):
        if host not in (None, '', '127.0.0.1', '::1', 'localhost', socket.gethostname()):
            reached.append(str(host))
            raise OSError('no network here')
        return look_up(host, *rest, **how)
    socket.socket.connect, socket.getaddrinfo = checked, named


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(folder), size_guidance=dict(scalars=0, images=0, tensors=0)).Reload()
    text = [e.tensor_proto.string_val[0].decode() for e in events.Tensors('answers/text_summary')]
    return dict(roi=[[e.step, e.value] for e in events.Scalars('economy/roi')], tables=len(text), text=text[-1],
                figures=[tag.removeprefix('figures/') for tag in events.Tags()['images']],
                configuration=events.Tensors('configuration/text_summary')[0].tensor_proto.string_val[0].decode())


def trackio(folder):
    from trackio.sqlite_storage import SQLiteStorage
    [run] = SQLiteStorage.get_runs('evolora')
    rows = SQLiteStorage.get_logs('evolora', run)
    tables = [row['answers'] for row in rows if 'answers' in row]
    return dict(roi=[[row['step'], row['economy/roi']] for row in rows if 'economy/roi' in row], tables=len(tables),
                text=json.dumps(tables[-1]), figures=[k.removeprefix('figures/') for row in rows for k in row
                                                      if k.startswith('figures/')],
                configuration=json.dumps(SQLiteStorage.get_run_config('evolora', run)))


def mlflow(folder):
    from mlflow.tracking import MlflowClient
    client = MlflowClient(f'sqlite:///{folder}/mlflow.db')
    [run] = client.search_runs([client.get_experiment_by_name('evolora').experiment_id])
    id = run.info.run_id
    tables = sorted(one.path for one in client.list_artifacts(id, 'answers'))
    place = Path(run.info.artifact_uri.removeprefix('file://'))
    return dict(roi=[[m.step, m.value] for m in client.get_metric_history(id, 'economy/roi')], tables=len(tables),
                text=(place / tables[-1]).read_text(), configuration=json.dumps(run.data.params),
                figures=[Path(one.path).stem for one in client.list_artifacts(id, 'figures')])


def wandb(folder):
    import wandb
    wandb.teardown()        # its process writes the last of it when it ends
    runs = sorted(folder.glob('wandb/offline-run-*'))
    tables = [path for run in runs for path in sorted(run.glob('files/media/table/answers_*.json'))]
    records = [one for run in runs for path in run.glob('*.wandb') for one in wandb_records(path)]
    rows = [{one.key or one.nested_key[0]: json.loads(one.value_json) for one in record.history.item}
            for record in records if record.history.item]
    return dict(roi=[[row['step'], row['economy/roi']] for row in rows if 'economy/roi' in row], tables=len(tables),
                text=tables[-1].read_text(), ids=sorted({record.run.run_id for record in records if record.run.run_id}),
                figures=[path.name.split('_')[0] for run in runs
                         for path in run.glob('files/media/images/figures/*.png')],
                configuration=' '.join(one.key + one.value_json for r in records for one in r.run.config.update))


def wandb_records(path):
    "The records of a .wandb file: blocks of 32 KiB with pieces that have a checksum, a length and a kind in front"
    from wandb.proto.wandb_internal_pb2 import Record
    data, at, piece = path.read_bytes(), 7, b''
    while at + 7 <= len(data):
        left = (1 << 15) - at % (1 << 15)
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4:at + 6], 'little'), data[at + 6]
        piece += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):      # whole, or the last piece
            yield Record.FromString(piece)
            piece = b''


def main(tracker, folder, *turns):
    guard()
    from evolora.analysis.trackers import Tracked
    from evolora.ecology.record import Generation
    folder, given = Path(folder), json.load(sys.stdin)
    records = [Generation(**one) for one in given['records']]
    said = []
    for turn in turns:
        first, last = map(int, turn.split('-'))
        with Tracked([tracker], folder, given['config'], log=said.append) as tracked:
            for record in records[first:last + 1]: tracked(record)
            tracked.figures(last, folder / 'charts')
    print(json.dumps(globals()[tracker](folder / 'track' / tracker) | dict(said=said, reached=reached)))


if __name__ == '__main__': main(*sys.argv[1:])
