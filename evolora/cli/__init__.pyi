from . import app as app
from . import attention as attention
from . import baselines as baselines
from . import bench as bench
from . import calibrate as calibrate
from . import doctor as doctor
from . import hosts as hosts
from . import watch as watch
